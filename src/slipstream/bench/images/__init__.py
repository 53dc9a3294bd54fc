"""Images from their files to a model, beside other pipelines."""
