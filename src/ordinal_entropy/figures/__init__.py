"""PNG and SVG by matplotlib: figures of results, layouts of features, predictions; needs the [report] extra."""
