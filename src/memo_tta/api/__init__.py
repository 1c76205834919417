"""What people call from Python beside models and methods; `memo_tta` has the names."""
