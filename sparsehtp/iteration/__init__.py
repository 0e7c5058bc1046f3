"""The solver loop: driver, stopping, histories, results."""
