"""The routes: each reads its request, asks the registry once, and shapes the answer."""
