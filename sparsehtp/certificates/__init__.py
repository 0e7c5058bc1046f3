"""Certificates: facts about a solution, and proofs."""
