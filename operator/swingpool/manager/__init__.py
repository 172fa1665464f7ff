"""The manager: watches InferenceClusters and carries out decisions."""
