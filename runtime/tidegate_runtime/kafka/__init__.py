"""The bus on confluent-kafka, the topics of a cluster, and a broker of our own."""
