"""The interface of Nixtla's TimeGPT, for its client: parsing and formatting alone."""
