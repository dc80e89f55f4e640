"""The layers: one file a family, registered under Kaldi's nnet2 type names."""
