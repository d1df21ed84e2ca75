"""Results described once, for every place that shows them: tables of text, and how a terminal draws them."""
