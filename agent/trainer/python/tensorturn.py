"""placeholder until the next step"""
