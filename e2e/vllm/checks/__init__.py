"""What is proven on real vLLM; each module holds one claim."""
