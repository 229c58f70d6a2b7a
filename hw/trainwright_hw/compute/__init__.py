"""The engines that compute: PE1 with PE4, PE2 with PE3, and what both are made of."""
