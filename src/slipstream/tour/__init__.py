"""The tour follows one model through the product: forecast, training, compilation and serving.

    from slipstream.tour.guide import TourSpec, tour

The tour needs the packages that `pip install 'slipstream[torch,forecast,serve]'` installs.
"""
