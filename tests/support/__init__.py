"""Give the tests what they need of the world: a judge broker, a bare client, Java, waiting."""
