"""The main job on real input: a year of flights through the gate, killed, raced and proved."""
