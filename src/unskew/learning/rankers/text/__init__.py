"""Rankers that read text: configs, the encoder behind them, and its pre-training."""
