"""The messages and topics of Tidegate. They do not depend on which bus carries them."""
