"""`.tflite` files: `read` turns bytes into a Model, `write` builds small ones."""
