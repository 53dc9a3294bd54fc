import typer


def add_to(app: typer.Typer) -> None:
    @app.command("doctor")
    def doctor() -> None:
        pass
