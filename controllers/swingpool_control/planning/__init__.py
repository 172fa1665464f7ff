"""Planning ahead of time: from traffic, objectives and accelerator types to the cheapest mix of workers."""
