"""Tables: columns of numbers and categories, and a number to predict from them."""
