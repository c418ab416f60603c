"""The forms evaluated with numpy: what every target has to compute."""
