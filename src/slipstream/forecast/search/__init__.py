"""Which way to train is the fastest or the cheapest?"""
