"""The whole way of one model: forecast, trained, compiled, served and asked.

    from slipstream.tour.guide import Tour, TourSpec

Needs what `pip install 'slipstream[torch,forecast,serve]'` brings.
"""
