"""How far are results from those of the reference?"""
