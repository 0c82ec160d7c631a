"""Other processes: started, asked by messages, limited, halted, and ended with all that they have started."""
