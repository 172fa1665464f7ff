"""All that is peculiar to vLLM: versions, command line, metrics, probes. Another engine is another folder."""
