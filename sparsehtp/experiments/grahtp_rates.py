fig1 = None
