"""What training a model needs, before anything is bought: arithmetic on what its operators are.

    from slipstream.forecast.hardware import load
    from slipstream.forecast.trace import trace

So far it traces models and knows hardware; it forecasts nothing yet.
"""
