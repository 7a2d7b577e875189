"""Where TensorBoard finds the Attention tab.

TensorBoard imports this module whenever it starts, and an error here would stop it. So it has a name that
nobody else uses, imports nothing but TensorBoard, and does the rest where TensorBoard expects faults.
"""

from contextlib import suppress

from tensorboard.plugins import base_plugin

SAMPLES = 1000  # steps of a tag that TensorBoard keeps in memory; by its own default they would be ten


class Loader(base_plugin.TBLoader):
    """Makes the plugin; a fault in that leaves TensorBoard without the tab, and a line in its log."""

    def fix_flags(self, flags) -> None:
        """Keep all that a run records; what `--samples_per_plugin=attention=<n>` says is kept to."""
        with suppress(Exception):
            flags.samples_per_plugin = {"attention": SAMPLES, **(flags.samples_per_plugin or {})}

    def load(self, context: base_plugin.TBContext) -> base_plugin.TBPlugin | None:
        from dashboard.attention_tab.plugin import AttentionPlugin

        if AttentionPlugin.plugin_name in (context.plugin_name_to_instance or {}):
            return None  # somebody else's, and TensorBoard would refuse to start with two of a name
        return AttentionPlugin(context)
