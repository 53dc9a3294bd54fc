"""How long does a step take?"""
