"""Which engine and precision is the fastest that is accurate enough?"""
