"""Following commits on Faust: records are acknowledged after their effects are durable."""
