"""Neural-network acoustic models in the form of Kaldi's nnet2."""
