"""What one paper needs: its tables and claims, a folder per paper."""
