"""What a Spark job imports: a Delta writer, through the gate."""
