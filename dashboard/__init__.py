def __getattr__(name: str):
    """`from dashboard import log_attention` works, and `import dashboard` stays without torch."""
    if name != "log_attention":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dashboard.recording import log_attention

    return log_attention
