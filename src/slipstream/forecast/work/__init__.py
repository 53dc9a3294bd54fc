"""What does a step compute, and how is it spread over devices?"""
