"""What a server tells of its work, besides its metrics: logs, statistics, traces."""
