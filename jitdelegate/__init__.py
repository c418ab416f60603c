"""jitdelegate: compiles each .tflite graph for this machine once, caches the program, starts at once ever after."""
