fig4 = fig5 = None
