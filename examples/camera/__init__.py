"""The parts of the camera example: the scene, those who look at it, the texture, and the account."""
