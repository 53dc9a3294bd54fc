"""The tour of one model through the product: forecast, training, compilation and serving.

    from slipstream.tour.guide import Tour, TourSpec

It needs the packages of `pip install 'slipstream[torch,forecast,serve]'`.
"""
