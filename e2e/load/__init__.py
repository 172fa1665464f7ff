"""HTTP load on an OpenAI-style endpoint: open loop, every token timed, only whole answers counted as success."""
