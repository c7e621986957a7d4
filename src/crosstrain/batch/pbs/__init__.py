"""PBS (OpenPBS, PBS Professional, TORQUE): commands, what they print, job scripts."""
