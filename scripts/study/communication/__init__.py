"""How the processes of a run find one another and talk; knows no framework."""
