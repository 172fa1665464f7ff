"""Programs of others that send requests, in an environment of their own, as their users would run them."""
