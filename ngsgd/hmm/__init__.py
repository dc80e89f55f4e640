"""HMM topology, decision tree, transition model, graphs and alignment."""
