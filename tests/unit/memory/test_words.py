"""The lexical index in many languages."""

from __future__ import annotations

import pytest
from memory_setting import opened, related

from holdfast.memory import NoEmbedder
from holdfast.memory.words import drop_names, match_expression, name_place, query_words

# A sentence about a cat or a house in forty languages, and a word to find it by.
SENTENCES = {
    "Afrikaans": ("Die kat slaap op die mat", "kat"),
    "Albanian": ("Macja fle mbi qilim", "macja"),
    "Amharic": ("ድመቷ በምንጣፉ ላይ ተኝታለች", "ድመቷ"),
    "Arabic": ("القِطَّةُ تنام على السجادة", "القطة"),
    "Armenian": ("Կատուն քնում է գորգի վրա", "կատուն"),
    "Basque": ("Katua alfonbran lo dago", "katua"),
    "Bengali": ("বিড়াল মাদুরে ঘুমায়", "বিড়াল"),
    "Bulgarian": ("Котката спи на килима", "котката"),
    "Burmese": ("ကြောင်က ဖျာပေါ်မှာ အိပ်တယ်", "ကြောင်"),
    "Catalan": ("El gat dorm a l'estora", "estora"),
    "Chinese": ("我的猫睡在垫子上", "垫子"),
    "Croatian": ("Mačka spava na tepihu", "macka"),
    "Czech": ("Kočka spí na rohoži", "kočka"),
    "Danish": ("Katten sover på måtten", "måtten"),
    "Dutch": ("De kat slaapt op de mat", "slaapt"),
    "English": ("The cats were sleeping", "cat"),
    "Finnish": ("Kissa nukkuu matolla", "kissa"),
    "French": ("Le café est fermé l'été", "ete"),
    "Georgian": ("კატა ხალიჩაზე სძინავს", "კატა"),
    "German": ("Die Straße ist gesperrt", "STRASSE"),
    "Greek": ("Η γάτα κοιμάται στο χαλί", "γατα"),
    "Gujarati": ("બિલાડી સાદડી પર સૂવે છે", "બિલાડી"),
    "Hebrew": ("הֶחָתוּל יָשֵׁן", "החתול"),
    "Hindi": ("बिल्ली चटाई पर सोती है", "बिल्ली"),
    "Hungarian": ("A macska a szőnyegen alszik", "szonyegen"),
    "Icelandic": ("Kötturinn sefur á mottunni", "kötturinn"),
    "Italian": ("Il gatto dorme sul tappeto", "gatto"),
    "Japanese": ("猫はマットの上で寝ています", "マット"),
    "Khmer": ("ឆ្មាដេកលើកន្ទេល", "ឆ្មា"),
    "Korean": ("고양이가 매트 위에서 잔다", "고양이"),
    "Lao": ("ແມວນອນຢູ່ເທິງເສື່ອ", "ແມວ"),
    "Lithuanian": ("Katė miega ant kilimėlio", "kate"),
    "Polish": ("Kot śpi na łóżku", "łóżku"),
    "Portuguese": ("O gato não dorme", "nao"),
    "Russian": ("Кошка спит на коврике", "КОШКА"),
    "Spanish": ("El niño duerme mañana", "manana"),
    "Tamil": ("பூனை பாயில் தூங்குகிறது", "பூனை"),
    "Thai": ("แมวนอนบนเสื่อ", "เสื่อ"),
    "Turkish": ("Kedi paspasın üzerinde uyuyor", "uzerinde"),
    "Vietnamese": ("Con mèo ngủ trên thảm", "mèo"),
}


async def test_forty_languages_are_found_by_a_word() -> None:
    assert len(SENTENCES) == 40
    async with opened(NoEmbedder()) as manager:
        ids = {
            language: await manager.store_memory("s1", sentence, {})
            for language, (sentence, _) in SENTENCES.items()
        }
        missed = []
        for language, (_, word) in SENTENCES.items():
            found = [entry.id for entry in await manager.search_memory("s1", word)]
            if ids[language] not in found:
                missed.append(language)
    assert missed == []


async def test_emoji_single_characters_and_code_names_are_found() -> None:
    async with opened(NoEmbedder()) as manager:
        await manager.store_memory("s1", "we celebrated 🎉👍🏽 with 私の猫", {})
        await manager.store_memory("s1", "call getUserById in user_service.py", {})
        for query, part in (("🎉", "🎉"), ("猫", "猫"), ("的猫", "猫"), ("user id", "getUser")):
            found = related(await manager.search_memory("s1", query))
            if query == "的猫":
                assert found == [], "no pair in common"
            else:
                assert part in found[0].content, query


@pytest.mark.parametrize(
    "query",
    ['"', "''", "a AND b", "x OR", "NOT x", "NEAR(a b, 2)", "own:a", "{place} : z", "^a", "a*",
     "-a",
     "; DROP TABLE memories", "\\", "%", "(((", "a\x00b", "p" + "0" * 39, '" OR "'],
)  # fmt: skip
async def test_the_syntax_of_the_index_is_never_obeyed(query: str) -> None:
    async with opened(NoEmbedder()) as manager:
        await manager.store_memory("s2", "foreign a b x z own place near or not and", {})
        await manager.store_memory("s1", "mine", {})
        assert related(await manager.search_memory("s1", query)) == []


def test_every_word_of_a_query_is_quoted() -> None:
    expression = match_expression([name_place("t")], query_words('say "hi" OR place:x*'))
    outside = "".join(expression.split('"')[::2])
    assert set(outside.split()) <= {"{place}", ":", "(", "()", "OR", ")", "AND", "{own", "before}"}


def test_fillers_and_names_are_left_out_unless_they_are_all() -> None:
    assert query_words("What did Ada say about the moon?", leave_out=frozenset({"ada"})) == [
        "say",
        "moon",
    ]
    assert query_words("who was it") == ["who", "was", "it"]
    assert len(query_words(" ".join(f"w{n}" for n in range(100)))) == 32


def test_names_are_taken_out_of_the_meaning_but_never_everything() -> None:
    assert drop_names("Ada's dog met Bob", ["Ada", "Bob"]) == "dog met"
    assert drop_names("Ada", ["Ada"]) == "Ada"
    assert drop_names("Adam (x)", ["Ada", "("]) == "Adam (x)"
