"""What earlier runs really took: their file, and the corrections of forecasts that follow."""
