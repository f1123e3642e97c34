"""The interface of Nixtla's TimeGPT, for its client: only parsing and formatting."""
