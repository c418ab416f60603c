"""`.tflite` files. Read `read.py` first.

- `read.py`: `read(content) -> Model`. `subgraph.py`: one subgraph as a Graph; `constants.py`, `quantization.py`,
  `sparsity.py`, `options.py`, `calls.py`: its tensors and operators. `record.py`: a table as a dictionary of fields.
- `write.py`: `ModelBuilder` makes small models. `pack.py`: a dictionary of fields as a table.
- `cut.py`: a partition of a model as a model. `svdf_states.py`: widens SVDF states that LiteRT's kernel would overflow.
- `float_ports.py`, `extra_outputs.py`: copies of a model with other inputs and outputs, as options ask for them.
- `schema.py`: TFLite's schema as data, generated.
"""
